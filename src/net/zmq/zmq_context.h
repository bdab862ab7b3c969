// ZeroMQ's contexts, and the end of a connection, where descriptors, threads or memory may have run out. ZeroMQ reports
// neither: it ends the process where a context or a socket gets no descriptor, no thread or not a few bytes, and a
// connection for whose next message there is no memory. Used wherever Layercast has a socket of ZeroMQ.
#pragma once

#include <cstddef>
#include <string>
#include <zmq.hpp>

#include "layercast/error.h"

namespace layercast {

// What a context costs that has one socket, a monitor of its events, and one connection.
inline constexpr std::size_t kContextDescriptors = 10;

// A context, after it was tried whether there is enough for it. Throws kResourceExhausted; `what` opens the message.
zmq::context_t MakeContext(const std::string& what);

// Why a connection was lost: kResourceExhausted if there is no memory for twice `bytes` bytes, which it may have had on
// their way, and which are free again by now; else kUnavailable with `what` alone.
Error LostConnection(const std::string& what, std::size_t bytes);

}  // namespace layercast
