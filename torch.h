// Declares gradus under LibTorch's names. Programs include this short path; the contents are in compat/torch.h.
#pragma once

#include <gradus/compat/torch.h>
