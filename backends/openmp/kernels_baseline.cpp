#define GRADUS_ISA baseline
#include <gradus/backends/openmp/kernel_table.h>
