#include "engine_side/reload/noise/norm_noise.h"

#include <algorithm>
#include <map>
#include <string>
#include <utility>

#include "layercast/error.h"
#include "src/base/digest/digest.h"
#include "src/noise/add_noise.h"
#include "src/tensor/region.h"

namespace layercast {
namespace {

std::optional<Noise> NoiseOf(const NormState& state) {
  if (state.known == 0 || state.noise.sigma == 0) return std::nullopt;
  return state.noise;
}

}  // namespace

NormNoise::NormNoise(const Module& model, const KernelLayout& layout, MemoryResource* kept, MemoryResource& host)
    : layout_(layout), host_(host), norms_(NormsOf(model, layout)) {
  if (kept != nullptr) TakeMemory(*kept);
}

void NormNoise::TakeMemory(MemoryResource& memory) { clean_.emplace(layout_, norms_, memory); }

const Norm* NormNoise::FindNorm(const KernelTensor& tensor) const {
  const auto found = std::ranges::lower_bound(norms_, layout_.IndexOf(tensor), {}, &Norm::tensor);
  return found != norms_.end() && found->tensor == layout_.IndexOf(tensor) ? &*found : nullptr;
}

void NormNoise::Begin(const std::optional<Noise>& noise) {
  if (noise && norms_.empty()) {
    throw Error(ErrorCode::kUnsupported,
                "a version with noise: this engine's tree names no RMS norm that could get it (expected a model of a "
                "known family, or an engine that takes versions without their noise)");
  }
  installing_ = noise;
  if (noise && !clean_) TakeMemory(host_);
  if (clean_) clean_->Begin();
}

void NormNoise::Install(std::span<const KernelTensor> tensors, const LayerSink& sink, StageWork& work) {
  if (!installing_) return;
  for (const KernelTensor& tensor : tensors) {
    const Norm* const norm = FindNorm(tensor);
    if (norm == nullptr) continue;
    const std::span<std::byte> bytes = sink.BytesOf(tensor);
    Buffer memory;
    const std::span<const std::byte> published[] = {bytes};
    const std::span<std::byte> clean = clean_->Staged(*norm);
    std::ranges::copy(work.ReadBack(published, memory).front(), clean.begin());
    std::vector<std::byte> noisy(clean.size());
    AddNoise(*installing_, {.name = tensor.spec.name, .dtype = tensor.spec.dtype, .first_channel = norm->first_channel},
             clean, noisy);
    work.Write(AsView(noisy), bytes.data());
  }
}

void NormNoise::Finish() {
  if (clean_) clean_->Note(installing_.value_or(Noise()));
}

void NormNoise::PutCleanDigests(std::span<Digest> digests) const {
  if (!staged()) return;
  for (const Norm& norm : norms_) digests[norm.tensor] = DigestOf(clean_->Staged(norm));
}

bool NormNoise::WriteClean(const KernelTensor& tensor, std::span<std::byte> to, StageWork& work) const {
  const Norm* const norm = served() ? FindNorm(tensor) : nullptr;
  if (norm == nullptr) return false;
  work.Write(AsView(clean_->Served(*norm)), to.data());
  return true;
}

void NormNoise::Become() {
  if (clean_) clean_->Become();
}

void NormNoise::RollBack() {
  if (clean_) clean_->RollBack();
}

void NormNoise::Settle() {
  if (clean_) clean_->Settle();
}

void NormNoise::Lose() {
  if (clean_) clean_->Lose();
}

std::optional<Noise> NormNoise::served() const { return clean_ ? NoiseOf(clean_->served()) : std::nullopt; }
std::optional<Noise> NormNoise::staged() const { return clean_ ? NoiseOf(clean_->staged()) : std::nullopt; }

CapturedBuffers NormNoise::Clean(const CapturedBuffers& captured) const {
  if (!served()) return captured;
  std::map<std::string, std::byte*> published;
  for (const Norm& norm : norms_) published[layout_.tensors()[norm.tensor].spec.name] = clean_->Served(norm).data();
  return captured.SeenAs([published = std::move(published)](CapturedBuffer buffer) {
    const auto found = published.find(buffer.name);
    if (found == published.end()) return buffer;
    buffer.address = found->second;
    buffer.strides = {};
    buffer.device = {};
    return buffer;
  });
}

}  // namespace layercast
