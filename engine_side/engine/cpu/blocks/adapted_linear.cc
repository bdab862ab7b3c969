#include "engine_side/engine/cpu/blocks/adapted_linear.h"

#include "engine_side/engine/cpu/kernels/row_linear.h"

namespace layercast {

void ColumnParallel(const Activations& x, const LinearOperand& linear, const SlotGroups& groups, Activations& y) {
  ColumnParallel(x, linear, linear.dtype, y);
  LowRank terms(linear.adapter, groups);
  if (terms.empty()) return;
  terms.Shrink(x);
  terms.AddTo(linear.dtype, y);
}

void RowParallel(const Activations& x, const LinearOperand& linear, const SlotGroups& groups, Collective& collective,
                 Activations& y) {
  RowParallel(x, linear, linear.dtype, collective, y);
  LowRank terms(linear.adapter, groups);
  if (terms.empty()) return;
  terms.Shrink(x);
  terms.SumOver(collective);
  terms.AddTo(linear.dtype, y);
}

}  // namespace layercast
