#include "engine_side/reload/sources/config_check.h"

#include <algorithm>
#include <iterator>
#include <utility>

#include "layercast/error.h"
#include "layercast/model/draft_model.h"
#include "src/checkpoint/config_text.h"

namespace layercast {
namespace {

using Words = std::vector<std::string>;

std::string Joined(std::span<const std::string> words) {
  std::string text;
  for (const std::string& each : words) text += (text.empty() ? "" : "; ") + each;
  return text;
}

// What differs in one source, without its name. A configuration that nothing can be built from differs altogether, so
// that a caller who takes changes gets those weights too.
Words WordsOf(const ServedConfig& served, const SourceConfig& source) {
  try {
    Words words;
    const auto differences =
        source.is_drafts ? served.DraftDifferencesFrom(source.text) : served.DifferencesFrom(source.text);
    std::ranges::transform(differences, std::back_inserter(words), Sentence);
    return words;
  } catch (const Error& error) {
    return {"cannot be compared: " + std::string(error.what())};
  }
}

[[noreturn]] void RefuseDisagreement(const SourceConfig& one, const Words& says, const SourceConfig& other,
                                     const Words& contradicts) {
  const auto text = [](const Words& words) { return words.empty() ? "as this engine is configured" : Joined(words); };
  throw Error(ErrorCode::kInvalidArgument, "one version of two configurations: " + one.from + ": " + text(says) +
                                               "; but " + other.from + ": " + text(contradicts));
}

}  // namespace

std::vector<SourceConfig> ConfigsOf(const CheckpointSource& source, std::string config) {
  std::vector<SourceConfig> configs = {{"checkpoint " + source.path, std::move(config)}};
  for (const CheckpointSource::Secondary& more : source.secondary) {
    if (more.prefix == kDraftPrefix) configs.push_back({"checkpoint " + more.path, ConfigTextBeside(more.path), true});
  }
  return configs;
}

std::vector<std::string> ConfigChanges(const ServedConfig* served, std::span<const SourceConfig> sources) {
  Words changes;
  if (served == nullptr) return changes;
  const SourceConfig* first = nullptr;
  Words firsts;
  for (const SourceConfig& source : sources) {
    if (source.text.empty()) continue;
    const bool repeated = first != nullptr && !source.is_drafts && source.text == first->text;
    const Words words = repeated ? firsts : WordsOf(*served, source);
    if (!source.is_drafts && first == nullptr) {
      first = &source;
      firsts = words;
    } else if (!source.is_drafts && words != firsts) {
      RefuseDisagreement(*first, firsts, source, words);
    }
    for (const std::string& each : words) changes.push_back(source.from + ": " + each);
  }
  return changes;
}

void RefuseConfigChanges(std::span<const std::string> changes) {
  if (changes.empty()) return;
  throw Error(ErrorCode::kInvalidArgument,
              "the configuration of these weights is not the engine's, which would compute "
              "wrongly with them: " +
                  Joined(changes) + " (with --allow-config-change they are taken all the same)");
}

}  // namespace layercast
