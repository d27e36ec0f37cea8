// Datasets, transforms and loaders.
#pragma once

#include <gradus/data/any_dataset.h>
#include <gradus/data/cifar10.h>
#include <gradus/data/combine.h>
#include <gradus/data/data_loader.h>
#include <gradus/data/dataset.h>
#include <gradus/data/device_images.h>
#include <gradus/data/device_loader.h>
#include <gradus/data/image_dataset.h>
#include <gradus/data/image_file.h>
#include <gradus/data/image_folder.h>
#include <gradus/data/image_transforms.h>
#include <gradus/data/mixup.h>
#include <gradus/data/mnist.h>
#include <gradus/data/samplers.h>
#include <gradus/data/stl10.h>
#include <gradus/data/synthetic_digits.h>
#include <gradus/data/tar_shards.h>
#include <gradus/data/tensor_dataset.h>
#include <gradus/data/transforms.h>
