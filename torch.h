// LibTorch's names for gradus. The header is compat/torch.h; this one keeps the path short.
#pragma once

#include <gradus/compat/torch.h>
