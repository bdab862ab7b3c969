#include "src/checkpoint/formats/checkpoint.h"

#include <algorithm>
#include <numeric>
#include <optional>
#include <system_error>
#include <unordered_map>
#include <utility>

#include "layercast/error.h"
#include "src/base/log.h"
#include "src/base/utf8.h"
#include "src/checkpoint/config_text.h"
#include "src/checkpoint/formats/survey.h"
#include "src/checkpoint/read_ahead.h"

namespace layercast {
namespace {

constexpr std::size_t kMostProblems = 10;
constexpr std::uint64_t kWorthReadingAhead = 8U << 20;  // bytes; for fewer, starting threads costs more than reading
constexpr std::size_t kThreadsReadingAhead = 4;
constexpr std::uint64_t kMostReadAhead = 256U << 20;  // bytes

void RefuseProblems(const CheckpointSurvey& survey) {
  if (survey.problems.empty()) return;
  std::string message;
  const std::size_t shown = std::min(survey.problems.size(), kMostProblems);
  for (std::size_t i = 0; i < shown; ++i) message += (i == 0 ? "" : "; ") + survey.problems[i].message;
  if (shown < survey.problems.size()) message += "; and " + std::to_string(survey.problems.size() - shown) + " more";
  throw Error(survey.problems.front().code, message);
}

}  // namespace

std::string DefaultLineage(const std::filesystem::path& path) {
  std::error_code error;
  const std::filesystem::path whole = std::filesystem::weakly_canonical(path, error);
  const std::filesystem::path& known = error ? path : whole;
  return Escaped((std::filesystem::is_directory(known, error) ? known : known.parent_path()).filename().native());
}

struct Checkpoint::Contents {
  explicit Contents(CheckpointSurvey from) : survey(std::move(from)), layered(survey.source.load_format == "layered") {
    specs.reserve(survey.tensors.size());
    for (const auto& at : survey.tensors) {
      specs.push_back(at.spec);
      total_bytes += static_cast<std::uint64_t>(at.spec.num_bytes());
    }
    for (std::size_t i = 0; i < specs.size(); ++i) by_name.emplace(specs[i].name, i);
  }

  NamedTensor Tensor(std::size_t index) const {
    const CheckpointSurvey::Located& at = survey.tensors.at(index);
    NamedTensor named = survey.Read(at);
    if (layered) named.owner = Releasing(survey.files[at.file], std::move(named.owner));
    return named;
  }

  // An owner that keeps what `owner` keeps, and in the end releases the pages that reading the tensor has brought in.
  static std::shared_ptr<const void> Releasing(std::shared_ptr<const TensorFile> file,
                                               std::shared_ptr<const void> owner) {
    const void* const address = owner.get();
    return {address, [file = std::move(file), owner = std::move(owner)](const void*) mutable {
              owner.reset();
              file->mapping().Release(file->mapping().bytes());
            }};
  }

  CheckpointSurvey survey;
  const bool layered;
  std::vector<TensorSpec> specs;
  std::unordered_map<std::string_view, std::size_t> by_name;  // the keys live in specs
  std::uint64_t total_bytes = 0;
};

Checkpoint::Checkpoint(std::shared_ptr<const Contents> contents) : contents_(std::move(contents)) {}

Checkpoint Checkpoint::Open(const CheckpointSource& source) {
  CheckpointSurvey survey = SurveyCheckpoint(source);
  RefuseProblems(survey);
  for (const std::string& warning : survey.warnings) log::warn("{}", warning);
  return Checkpoint(std::make_shared<const Contents>(std::move(survey)));
}

const CheckpointSource& Checkpoint::source() const { return contents_->survey.source; }

const std::vector<TensorSpec>& Checkpoint::specs() const { return contents_->specs; }

std::uint64_t Checkpoint::total_bytes() const { return contents_->total_bytes; }

std::int64_t Checkpoint::Find(std::string_view name) const {
  const auto found = contents_->by_name.find(name);
  return found == contents_->by_name.end() ? -1 : static_cast<std::int64_t>(found->second);
}

void Checkpoint::CheckHeads(std::int64_t num_attention_heads, std::int64_t num_key_value_heads) const {
  const CheckpointSurvey& survey = contents_->survey;
  for (std::size_t i = 0; i < survey.own_files; ++i) {
    const HeadCounts* const said = survey.files[i]->head_counts();
    if (said == nullptr) continue;
    const auto different = Differences(*said, {num_attention_heads, num_key_value_heads}, "the model that is loaded");
    if (!different.empty()) throw Error(ErrorCode::kInvalidArgument, different.front());
  }
}

std::string Checkpoint::config() const {
  const CheckpointSurvey& survey = contents_->survey;
  for (std::size_t i = 0; i < survey.own_files; ++i) {
    if (std::string said = survey.files[i]->config(); !said.empty()) return said;
  }
  return ConfigTextBeside(survey.source.path);
}

NamedTensor Checkpoint::Tensor(std::size_t index) const { return contents_->Tensor(index); }

NamedTensor Checkpoint::Tensor(std::string_view name) const {
  const std::int64_t index = Find(name);
  if (index < 0) {
    throw Error(ErrorCode::kNotFound, Quote(source().path) + ": no tensor called " + Quote(name) + " among its " +
                                          std::to_string(specs().size()));
  }
  return contents_->Tensor(static_cast<std::size_t>(index));
}

std::unique_ptr<WeightsIterator> Checkpoint::Weights() const {
  std::vector<std::uint32_t> order(specs().size());
  std::iota(order.begin(), order.end(), 0U);
  return Weights(std::move(order));
}

std::unique_ptr<WeightsIterator> Checkpoint::Weights(std::vector<std::uint32_t> order) const {
  if (contents_->layered || total_bytes() < kWorthReadingAhead) {
    return MakeWeightsIterator([contents = contents_, order = std::move(order),
                                next = std::size_t{0}]() mutable -> std::optional<NamedTensor> {
      if (next == order.size()) return std::nullopt;
      return contents->Tensor(order[next++]);
    });
  }
  std::vector<std::uint64_t> bytes;
  for (const std::uint32_t index : order) bytes.push_back(static_cast<std::uint64_t>(specs().at(index).num_bytes()));
  auto read = [contents = contents_, order = std::move(order)](std::size_t i) { return contents->Tensor(order[i]); };
  return std::make_unique<ReadAhead>(std::move(bytes), std::move(read), kThreadsReadingAhead, kMostReadAhead);
}

}  // namespace layercast
