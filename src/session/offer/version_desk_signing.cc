// VersionDesk: what is signed for a receiver that asks for it.
#include <optional>
#include <span>
#include <string>

#include "layercast/error.h"
#include "src/session/offer/version_desk.h"
#include "src/session/signing/signed_text.h"

namespace layercast {

void VersionDesk::OnAskSigned(Session& session, const wire::AskSigned& ask) const {
  if (session.schedule != nullptr) throw Error(ErrorCode::kInvalidArgument, "'ask_signed' behind 'subscribe'");
  if (parts_.context.signing == nullptr) {
    throw Error(ErrorCode::kPermissionDenied, "version " + session.version()->manifest().version().ToString() +
                                                  " is not signed: this " + options_.name +
                                                  " was given no key to sign with (--sign)");
  }
  session.asked_signed = ask;
}

std::optional<SignedText> VersionDesk::SignedTextOf(const Session& session) {
  if (!session.asked_signed) return std::nullopt;
  const OfferedVersion& version = *session.version();
  const Provenance& provenance = version.provenance();
  return SignedText(session.hello, *session.asked_signed, version.manifest().version(), version.encoded_manifest(),
                    provenance.run, std::as_bytes(std::span(provenance.config)), *session.schedule);
}

}  // namespace layercast
