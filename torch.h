// LibTorch's names for gradus: compat/torch.h under a shorter path.
#pragma once

#include <gradus/compat/torch.h>
