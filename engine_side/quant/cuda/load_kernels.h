// The parts of LoadCudaKernels (cuda_kernels.h). Each is in the file that compiles its kernels, because a kernel can be
// named only there.
#pragma once

namespace layercast {

void LoadCudaCopy();
void LoadCudaFp8PerTensor();
void LoadCudaFp8PerChannel();
void LoadCudaInt8PerChannel();
void LoadCudaFp8PerBlock();
void LoadCudaMxfp8();
void LoadCudaMxfp4();
void LoadCudaNvfp4();
void LoadCudaRescale();
void LoadCudaDequantize();

}  // namespace layercast
