#include <algorithm>
#include <string>

#include "layercast/error.h"
#include "src/base/digest/digest.h"
#include "src/delta/change_positions.h"
#include "src/delta/delta_frame.h"
#include "src/delta/element_bits.h"
#include "src/delta/ordered_steps.h"
#include "src/delta/pack_changes.h"

namespace layercast {
namespace {

// Compared, and digested while they are in cache: two of these fit the second level. Whole leaves of a digest.
constexpr std::size_t kComparedBytes = 8 * kLeafBytes;

void CheckElements(std::size_t bytes, std::size_t element_bytes) {
  const bool known = element_bytes == 1 || element_bytes == 2 || element_bytes == 4;
  if (known && bytes % element_bytes == 0) return;
  throw Error(ErrorCode::kInvalidArgument, "delta: expected whole elements of 1, 2 or 4 bytes, got " +
                                               std::to_string(bytes) + " bytes in elements of " +
                                               std::to_string(element_bytes));
}

// Digests bytes as they pass by, unless their digest is known.
class PassingDigest {
 public:
  explicit PassingDigest(const std::optional<Digest>& known) : known_(known) {}

  void Update(std::span<const std::byte> bytes) {
    if (!known_.has_value()) digester_.Update(bytes);
  }
  Digest Finish() const { return known_.has_value() ? *known_ : digester_.Finish(); }

 private:
  std::optional<Digest> known_;
  Digester digester_;
};

template <class U>
void AppendSteps(const std::byte* base, const std::byte* next, std::span<const std::uint64_t> words,
                 std::size_t changed, StepList& steps) {
  StepWriter<U> writer(steps, changed);
  for (BitPositions positions(words); positions.next() != kNoPosition; positions.Advance()) {
    writer.Put(StepCode(LoadElement<U>(base, positions.next()), LoadElement<U>(next, positions.next())));
  }
  writer.Close();
}

}  // namespace

std::vector<std::byte> EncodeDelta(const KnownBytes& base, const KnownBytes& next, std::size_t element_bytes,
                                   DeltaEffort effort) {
  CheckElements(next.bytes.size(), element_bytes);
  const std::size_t bytes = next.bytes.size();
  if (base.bytes.size() != bytes) {
    throw Error(ErrorCode::kInvalidArgument, "delta: expected a base of " + std::to_string(bytes) + " bytes, got " +
                                                 std::to_string(base.bytes.size()));
  }
  ChangeList changes{.elements = bytes / element_bytes, .element_bytes = element_bytes, .words = {}, .steps = {}};
  changes.words.resize(NumWords(changes.elements));
  PassingDigest base_digest(base.digest);
  PassingDigest next_digest(next.digest);
  for (std::size_t at = 0; at < bytes; at += kComparedBytes) {
    const std::size_t count = std::min(kComparedBytes, bytes - at);
    const std::span<const std::byte> before = base.bytes.subspan(at, count);
    const std::span<const std::byte> after = next.bytes.subspan(at, count);
    base_digest.Update(before);
    next_digest.Update(after);
    const std::span words =
        std::span(changes.words).subspan(at / element_bytes / kWordBits, NumWords(count / element_bytes));
    const std::size_t changed = ChangedBits(before, after, element_bytes, words);
    if (changed == 0) continue;
    ForElement(element_bytes, [&](auto element) {
      AppendSteps<typename decltype(element)::type>(before.data(), after.data(), words, changed, changes.steps);
    });
  }
  return PackChanges(changes, {base_digest.Finish(), next_digest.Finish(), base.bytes, next.bytes}, effort);
}

std::vector<std::byte> EncodeDense(const KnownBytes& next, std::size_t element_bytes, DeltaEffort effort) {
  CheckElements(next.bytes.size(), element_bytes);
  return PackDense(next.bytes, element_bytes, next.digest.has_value() ? *next.digest : DigestOf(next.bytes), effort);
}

}  // namespace layercast
