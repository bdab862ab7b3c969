#include "src/checkpoint/formats/load_format.h"

#include <algorithm>

#include "layercast/error.h"
#include "src/base/utf8.h"
#include "src/checkpoint/formats/mistral_loader.h"
#include "src/checkpoint/gguf/gguf_loader.h"
#include "src/checkpoint/safetensors/safetensors_loader.h"
#include "src/checkpoint/torch_save/pt_loader.h"

namespace layercast {
namespace {

using ReadBy = LoadFormat::ReadBy;

constexpr std::string_view kReadsHere = "use auto: files are mapped, read in parallel and ahead already";

constexpr LoadFormat kFormats[] = {
    {"auto", ReadBy::kAny, "the first of the formats below whose files are there"},
    {"safetensors", ReadBy::kLoader, "*.safetensors, with or without model.safetensors.index.json",
     &MakeSafetensorsLoader},
    {"mistral", ReadBy::kLoader,
     "consolidated*.safetensors and params.json, with or without consolidated.safetensors.index.json",
     &MakeMistralLoader},
    {"pt", ReadBy::kLoader, "*.bin or *.pt of torch.save, with or without pytorch_model.bin.index.json", &MakePtLoader},
    {"gguf", ReadBy::kLoader, "*.gguf: F32, F16, BF16 and Q8_0 tensors of the Llama family", &MakeGgufLoader},
    {"layered", ReadBy::kAny,
     "as auto, module by module: nothing is read ahead, and each is let go of when it is done"},
    {"sharded_state", ReadBy::kEngine, "what `layercast export` writes: each rank reads its own files"},
    {"dummy", ReadBy::kEngine, "seeded random weights: config.json alone"},
    {"remote", ReadBy::kEngine, "from a running publisher: config.json alone"},
    {"npcache", ReadBy::kNothing, "it only caches .bin files as NumPy's; use pt, which maps them"},
    {"bitsandbytes", ReadBy::kNothing, "use an unquantized checkpoint and --quantization"},
    {"tensorizer", ReadBy::kNothing, "save the model as safetensors, and use auto"},
    {"runai_streamer", ReadBy::kNothing, kReadsHere},
    {"runai_streamer_sharded", ReadBy::kNothing, "use sharded_state, which `layercast export` writes"},
    {"fastsafetensors", ReadBy::kNothing, kReadsHere},
    {"instanttensor", ReadBy::kNothing, kReadsHere},
    {"flash_rl", ReadBy::kNothing, "use auto and --quantization: every load quantizes"},
    {"remote_instance", ReadBy::kNothing, "use remote and a publisher"},
};

std::string KnownNames() {
  std::string names;
  for (const LoadFormat& format : kFormats) {
    if (format.read_by != ReadBy::kNothing) names += (names.empty() ? "" : ", ") + std::string(format.name);
  }
  return names;
}

bool Finds(const Loader& loader, const std::vector<std::string>& names) {
  if (!loader.index_name().empty() && std::ranges::find(names, loader.index_name()) != names.end()) return true;
  return !loader.Choose(names).empty();
}

}  // namespace

std::span<const LoadFormat> AllLoadFormats() { return kFormats; }

const LoadFormat& LoadFormatNamed(std::string_view name) {
  const auto* const found = std::ranges::find(kFormats, name, &LoadFormat::name);
  if (found == std::end(kFormats)) {
    throw Error(ErrorCode::kInvalidArgument, "load format " + Quote(name) + " is not known: expected " + KnownNames());
  }
  if (found->read_by == ReadBy::kNothing) {
    throw Error(ErrorCode::kUnsupported, "load format " + Quote(name) + " is not read: " + std::string(found->what));
  }
  return *found;
}

std::unique_ptr<const Loader> ChooseLoader(std::string_view format, const std::vector<std::string>& names) {
  const LoadFormat& named = LoadFormatNamed(format);
  if (named.read_by == ReadBy::kLoader) return named.make();
  if (named.read_by == ReadBy::kEngine) {
    throw Error(ErrorCode::kUnsupported, "load format " + Quote(format) +
                                             " holds no checkpoint: only an engine loads it (" +
                                             std::string(named.what) + ")");
  }
  for (const LoadFormat& candidate : kFormats) {
    if (candidate.make == nullptr) continue;
    auto loader = candidate.make();
    if (Finds(*loader, names)) return loader;
  }
  return nullptr;
}

std::vector<std::string> WeightFiles(const std::vector<std::string>& names) {
  std::vector<std::string> files;
  for (const LoadFormat& format : kFormats) {
    if (format.make == nullptr) continue;
    std::ranges::move(format.make()->Choose(names), std::back_inserter(files));
  }
  return files;
}

}  // namespace layercast
