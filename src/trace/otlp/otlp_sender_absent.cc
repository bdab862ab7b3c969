// In builds without cpp-httplib nothing is sent, and whoever asks for it is told so.
#include "layercast/error.h"
#include "src/trace/otlp/otlp_sender.h"

namespace layercast {

class OtlpSender::Impl {};

OtlpSender::OtlpSender(OtlpTarget /*target*/) {
  throw Error(ErrorCode::kUnsupported, "this build sends no traces (OTLP): it was made without cpp-httplib");
}
OtlpSender::~OtlpSender() = default;
void OtlpSender::Put(std::string /*body*/) {}
std::uint64_t OtlpSender::dropped() const { return 0; }

}  // namespace layercast
