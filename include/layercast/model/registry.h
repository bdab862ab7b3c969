// Which family builds the tree of which architecture. An object that main or the host builds, adds to, and hands over.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "layercast/dtype.h"
#include "layercast/export.h"
#include "layercast/model/config.h"
#include "layercast/model/module.h"
#include "layercast/model_description.h"
#include "layercast/parallel.h"

namespace layercast {

// Builds the tree of one rank on meta, its parameters in `dtype`.
using ModelFactory =
    std::function<std::unique_ptr<Module>(const ModelConfig& config, const ParallelConfig& parallel, DType dtype)>;

// Value: copies are independent. Reading is thread-safe.
class LAYERCAST_PUBLIC ModelRegistry {
 public:
  // With the families of this build: docs/models.md lists them.
  static ModelRegistry Builtin();

  // `architecture`: as `architectures` in config.json names it. `limits`: what of the family is left out, in words.
  // Throws kInvalidArgument if it is registered already.
  void Register(std::string architecture, ModelFactory factory, std::string limits = {});
  std::vector<std::string> architectures() const;                    // sorted
  const std::string& limits(const std::string& architecture) const;  // of one that is registered

  // The tree of the first of the configuration's architectures that is known, in the configuration's dtype. `names`:
  // what the trainer calls tensors -> what the family's checkpoints call them. Throws kUnsupported listing those known
  // if none is, and kInvalidArgument on a configuration that cannot be.
  std::unique_ptr<Module> Build(const ModelConfig& config, const ParallelConfig& parallel,
                                const WeightsMapper& names = {}) const;
  std::unique_ptr<Module> Build(const ModelDescription& description, const ParallelConfig& parallel,
                                const WeightsMapper& names = {}) const;

 private:
  struct Family {
    ModelFactory build;
    std::string limits;
  };
  std::map<std::string, Family> families_;
};

}  // namespace layercast
