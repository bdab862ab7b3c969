#include "engine_side/server/group/model_files.h"

#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <optional>
#include <utility>

#include "engine_side/server/group/memory_file.h"
#include "layercast/error.h"
#include "layercast/model/weight_rules.h"
#include "src/base/exhausted.h"
#include "src/control/json_forms.h"

namespace layercast {
ModelFiles ModelFiles::Read(const ModelFileNames& names) {
  ModelFiles files(ModelDescription::FromDirectory(names.model), NamedDraft::Read(names.draft), names.weight_rules,
                   names.weight_rules.empty() ? "" : WeightRules::TextOf(names.weight_rules));
  (void)files.Rules();  // reports an error in them here, rather than from each rank
  return files;
}

UniqueFd ModelFiles::ToDescriptor() const {
  const Json texts = {{"config", description_.config_json()},
                      {"draft_config", draft_.folder ? Json(draft_.folder->config_json()) : Json(nullptr)},
                      {"weight_rules", rules_}};
  const std::string text = texts.dump();
  UniqueFd fd = MemoryFile::Create("layercast-model-files");
  if (::pwrite(fd.get(), text.data(), text.size(), 0) == static_cast<ssize_t>(text.size())) return fd;
  throw SystemError(errno, ErrorCode::kResourceExhausted, "what the model's files say");
}

ModelFiles ModelFiles::FromDescriptor(int fd, const ModelFileNames& names) {
  std::string text(static_cast<std::size_t>(::lseek(fd, 0, SEEK_END)), '\0');
  if (::pread(fd, text.data(), text.size(), 0) != static_cast<ssize_t>(text.size())) {
    throw Error(ErrorCode::kInternal, std::string("what the model's files say: ") + std::strerror(errno));
  }
  const Json texts = Json::parse(text);
  NamedDraft draft{.name = names.draft};
  if (texts["draft_config"].is_string()) {
    draft.folder = ModelDescription::FromJson(texts["draft_config"].get<std::string>(), names.draft);
  }
  return {ModelDescription::FromJson(texts["config"].get<std::string>(), names.model), std::move(draft),
          names.weight_rules, texts["weight_rules"].get<std::string>()};
}

std::unique_ptr<Module> ModelFiles::BuildTree(const ParallelConfig& parallel) const {
  std::unique_ptr<Module> tree = BuildWithNamedDraft(description_, parallel, draft_);
  if (const std::optional<WeightRules> rules = Rules()) rules->ApplyTo(*tree);
  return tree;
}

std::optional<WeightRules> ModelFiles::Rules() const {
  if (rules_name_.empty()) return std::nullopt;
  return WeightRules::Parse(rules_, rules_name_);
}

}  // namespace layercast
