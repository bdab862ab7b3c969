#include "src/net/zmq/zmq_context.h"

#include "src/base/exhausted.h"

namespace layercast {
namespace {

constexpr std::size_t kThreads = 2;                   // one that moves bytes, and one that closes sockets
constexpr std::size_t kBytes = std::size_t{4} << 20;  // many times what queues and buffers take

}  // namespace

zmq::context_t MakeContext(const std::string& what) {
  ExpectRoomFor({.descriptors = kContextDescriptors, .threads = kThreads, .bytes = kBytes}, what);
  return zmq::context_t(1);
}

Error LostConnection(const std::string& what, std::size_t bytes) {
  try {
    ExpectRoomFor({.bytes = 2 * bytes}, what);
  } catch (const Error& error) {
    return error;
  }
  return {ErrorCode::kUnavailable, what};
}

}  // namespace layercast
