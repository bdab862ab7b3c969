// What a publisher signs of a version for a receiver that trusts keys: FORMAT.md has its bytes. Both ends make it, each
// of what it knows itself. Used by what announces chunks, and by sessions that fetch them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "src/base/hash/sha256.h"
#include "src/net/keys/signing_key.h"
#include "src/tensor/manifest/manifest.h"
#include "src/wire/frames.h"
#include "src/wire/schedule.h"

namespace layercast {

// What of a signed text is the same throughout a session. Value.
class SignedText {
 public:
  // `hello` is what the session began with, and `ask` what the receiver chose: with that, no signature is of use a
  // second time. `manifest` is the version's form, `run` and `config` what `welcome` has beside it.
  SignedText(const wire::Hello& hello, const wire::AskSigned& ask, const Version& version,
             std::span<const std::byte> manifest, const std::string& run, std::span<const std::byte> config,
             const Schedule& schedule);

  // The text for chunks of these hashes, the first of which is the schedule's number `first` (0 in a stream), and for
  // the message that announced them: `subscribed`, `more_digests` or `tensors_ready`.
  std::vector<std::byte> Of(std::uint32_t first, std::span<const Hash> hashes, const wire::Message& announced) const;

  // The message that follows that one.
  wire::SignedDigests Sign(const SigningKey& key, std::uint32_t first, std::vector<Hash> hashes,
                           const wire::Message& announced) const;

 private:
  std::vector<std::byte> head_;
};

}  // namespace layercast
