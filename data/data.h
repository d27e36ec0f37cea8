// Datasets, transforms and loaders.
#pragma once

#include <gradus/data/dataset.h>
#include <gradus/data/datasets/cifar10_stl10.h>
#include <gradus/data/datasets/image_dataset.h>
#include <gradus/data/datasets/image_folder.h>
#include <gradus/data/datasets/mnist.h>
#include <gradus/data/datasets/tar_shards.h>
#include <gradus/data/images/image_file.h>
#include <gradus/data/loader/data_loader.h>
#include <gradus/data/loader/device_images.h>
#include <gradus/data/loader/device_loader.h>
#include <gradus/data/loader/samplers.h>
#include <gradus/data/transforms/image_transforms.h>
#include <gradus/data/transforms/transforms.h>
