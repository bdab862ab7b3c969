// Linear layers with what adapters add to them: see row_linear.h and low_rank.h. Used by the decoder's blocks.
// Torch-free.
#pragma once

#include "engine_side/engine/blocks/operands.h"
#include "engine_side/engine/cpu/blocks/low_rank.h"
#include "engine_side/engine/cpu/kernels/activations.h"
#include "engine_side/engine/ranks/collective.h"

namespace layercast {

// Sets y to those outputs of the layer that this rank holds, rounded as is described: once for the base, and again for
// rows to which their slot adds something. `groups` are of the rows of x.
void ColumnParallel(const Activations& x, const LinearOperand& linear, const SlotGroups& groups, Activations& y);
// Sets y to the layer's output, summed over ranks. The base's sum is rounded before anything is added to it, so the
// small vectors are summed apart.
void RowParallel(const Activations& x, const LinearOperand& linear, const SlotGroups& groups, Collective& collective,
                 Activations& y);

}  // namespace layercast
