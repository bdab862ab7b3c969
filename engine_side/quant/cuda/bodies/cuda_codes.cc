#include "engine_side/quant/cuda/bodies/cuda_codes.h"

namespace layercast {

CudaCodes CodesOf(const CodeFormat& format, std::span<const KernelTensorView> tensors) {
  CudaCodes weight{.codes = reinterpret_cast<const std::uint8_t*>(tensors[0].data),
                   .scales = tensors[1].data,
                   .rows = tensors[0].rows,
                   .cols = format.ColsOf(tensors[0].cols),
                   .elements = format.elements,
                   .scale_type = format.scales};
  weight.block_rows = format.BlockRowsOf(weight.rows);
  weight.block_cols = format.BlockColsOf(weight.cols);
  if (format.has_global_scale) weight.global_scale = reinterpret_cast<const float*>(tensors[2].data);
  return weight;
}

}  // namespace layercast
