// What blocks compute with: linear layers and norms, found among the captured buffers by the names of modules and
// parameters. Used by the descriptions of blocks. Torch-free.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "engine_side/engine/blocks/adapter_operand.h"
#include "engine_side/engine/captured_weights.h"
#include "engine_side/engine/cpu/kernels/row_linear.h"
#include "engine_side/engine/rotary_table.h"
#include "layercast/dtype.h"
#include "layercast/model/layer_context.h"
#include "layercast/model/module.h"

namespace layercast {

// A linear layer. Value; the weights' memory is borrowed.
struct LinearOperand : LinearWeights {
  DType dtype = DType::kBF16;  // its output is rounded to it
  AdapterOperand adapter{};    // adds to the rounded output, which is rounded again
};

// An RMS norm. Value; the weight's memory is borrowed.
struct NormOperand {
  WeightView weight;
  double epsilon = 0.0;
  NormStyle style = NormStyle::kWeight;
  DType dtype = DType::kBF16;   // its output is rounded to it
  std::int64_t total_size = 0;  // of what one mean is taken over, on all ranks; 0: as the weight
};

// What descriptions are made with. Weights and rotary tables must outlive it.
struct DescriptionContext {
  CapturedWeights& weights;
  RotaryTables& rotary;
  DType dtype = DType::kBF16;                // the model's, to which outputs are rounded
  const char* pass = "the built-in engine";  // who computes: errors name it
  AdapterLookup* adapters = nullptr;         // null: there are none
};

// The operands of a module, by the names of its children and parameters. Borrows module and context.
class Operands {
 public:
  Operands(const Module& module, std::string path, const DescriptionContext& context)
      : module_(module), path_(std::move(path)), context_(context) {}

  const DescriptionContext& context() const { return context_; }
  bool Has(const std::string& child) const { return module_.FindChild(child) != nullptr; }
  const Module& Child(const std::string& name) const { return *module_.FindChild(name); }
  std::string PathOf(const std::string& child) const { return path_ + "." + child; }

  LinearOperand Linear(const std::string& child) const;
  LinearWeights WithoutAdapter(const std::string& child) const;
  AdapterOperand Adapter(const std::string& child, std::string_view parameter = "weight") const;
  // Throws kUnsupported, naming path and class, if the child is no RMSNorm.
  NormOperand Norm(const std::string& child) const;
  // These two: nullopt if there is no such child.
  std::optional<LinearOperand> FindLinear(const std::string& child) const;
  std::optional<NormOperand> FindNorm(const std::string& child) const;

  WeightView Own(std::string_view parameter) const { return context_.weights.Find(module_, path_, parameter); }
  WeightView Derived(std::string_view name) const { return context_.weights.FindDerived(module_, path_, name); }

 private:
  const Module& module_;
  std::string path_;
  const DescriptionContext& context_;
};

}  // namespace layercast
