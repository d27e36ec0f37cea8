// A digit that somebody has written and photographed, as MNIST would have it.
#pragma once

#include <gradus/autograd/tensor.h>

/// Of a photograph (3, H, W), values from 0 to 1: the digit in white on black, its longer side 20 pixels, its centre of
/// mass in the middle of (1, 28, 28), as LeCun et al. made MNIST (1998). The ground, paper or slate, is what most of
/// the border shows; what differs from it by less than a third of the ink is shadow. An image of 28 x 28 on a dark
/// ground is one of MNIST's already. Nothing but ground is a ValueError.
gradus::Tensor digit_of(const gradus::Tensor& photograph);
