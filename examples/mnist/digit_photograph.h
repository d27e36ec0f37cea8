// Converts the photograph of a handwritten digit to an image like MNIST's.
#pragma once

#include <gradus/autograd/tensor.h>

/// Takes a photograph (3, H, W) with values from 0 to 1. Returns the digit in white on black as (1, 28, 28): its longer
/// side has 20 pixels, and its centre of mass is in the middle, as in MNIST (LeCun et al. 1998). The colour of most
/// pixels at the border is the background, which may be light or dark. Pixels that differ from it by less than a third
/// of the ink's difference count as shadow. An image of 28 x 28 pixels with a dark background is returned unchanged, as
/// an image of MNIST. A photograph without a digit is a ValueError.
gradus::Tensor digit_of(const gradus::Tensor& photograph);
