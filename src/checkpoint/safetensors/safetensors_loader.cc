// `--load-format safetensors`: what Hugging Face transformers writes, in one file or several with an index.
#include "src/checkpoint/safetensors/safetensors_loader.h"

#include "src/checkpoint/safetensors/safetensors_file.h"
#include "src/checkpoint/safetensors/weight_index.h"

namespace layercast {
namespace {

class SafetensorsLoader final : public Loader {
 public:
  std::string_view index_name() const override { return kWeightIndexName; }

  // Leaves out consolidated files: they are the same weights once more, in the format `mistral`.
  std::vector<std::string> Choose(const std::vector<std::string>& names) const override {
    std::vector<std::string> chosen;
    for (const std::string& name : names) {
      if (name.ends_with(".safetensors") && !name.starts_with("consolidated")) chosen.push_back(name);
    }
    return chosen;
  }

  std::shared_ptr<const TensorFile> Open(const std::filesystem::path& file) const override {
    return std::make_shared<const SafetensorsFile>(file);
  }
};

}  // namespace

std::unique_ptr<const Loader> MakeSafetensorsLoader() { return std::make_unique<const SafetensorsLoader>(); }

}  // namespace layercast
