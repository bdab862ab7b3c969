#include "src/session/signing/signed_text.h"

#include <string_view>
#include <utility>

#include "src/base/bytes/archive.h"

namespace layercast {
namespace {

constexpr std::string_view kSignedLabel = "layercast-manifest-1";

void PutText(ArchiveWriter& out, const std::string& text) { Text<std::uint16_t>(out, text, "length", "text"); }

void PutDigest(ArchiveWriter& out, const Digest& digest) {
  out.Number(digest.high, "digest");
  out.Number(digest.low, "digest");
}

Hash HashOfProvenance(const std::string& run, std::span<const std::byte> config) {
  ArchiveWriter provenance;
  PutText(provenance, run);
  provenance.PutBytes(config);
  return HashOf(provenance.bytes());
}

}  // namespace

SignedText::SignedText(const wire::Hello& hello, const wire::AskSigned& ask, const Version& version,
                       std::span<const std::byte> manifest, const std::string& run, std::span<const std::byte> config,
                       const Schedule& schedule) {
  ArchiveWriter head;
  PutText(head, std::string(kSignedLabel));
  head.Array(ask.nonce, "nonce");
  PutText(head, hello.lineage);
  head.Number(static_cast<std::uint8_t>(hello.digest ? 2 : hello.step_known ? 1 : 0), "step known");
  head.Number(hello.step, "step");
  PutDigest(head, hello.digest);
  PutText(head, version.lineage);
  head.Number(version.step, "step");
  head.Array(HashOf(manifest), "manifest");
  head.Array(HashOfProvenance(run, config), "run and config");
  head.Array(HashOf(schedule.Encode()), "schedule");
  head_ = std::move(head).Take();
}

std::vector<std::byte> SignedText::Of(std::uint32_t first, std::span<const Hash> hashes,
                                      const wire::Message& announced) const {
  ArchiveWriter text;
  text.PutBytes(head_);
  text.Number(first, "first chunk");
  text.Number(static_cast<std::uint32_t>(hashes.size()), "chunks");
  text.Array(HashOf(std::as_bytes(hashes)), "hashes");
  text.Array(HashOf(wire::Encode({.session = 0, .message = announced})), "announcement");
  return std::move(text).Take();
}

wire::SignedDigests SignedText::Sign(const SigningKey& key, std::uint32_t first, std::vector<Hash> hashes,
                                     const wire::Message& announced) const {
  const Signature signature = key.Sign(Of(first, hashes, announced));
  return {.chunk_hashes = std::move(hashes), .key = key.public_key(), .signature = signature};
}

}  // namespace layercast
