// LAYERCAST_HOST_DEVICE marks a function that a CUDA compiler makes for the device as well; to any other it says
// nothing. What it marks is plain C++17: no standard library, no exceptions.
#pragma once

#ifdef __CUDACC__
#define LAYERCAST_HOST_DEVICE __host__ __device__
#else
#define LAYERCAST_HOST_DEVICE
#endif
