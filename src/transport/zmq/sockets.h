// Makes the sockets of the zmq channel, and sets every option whose default is unsafe. Each end has a context of its
// own, so that ends share neither threads nor anything else.
#pragma once

#include <zmq.hpp>

namespace layercast::zmq_channel {

// The sockets are neither connected nor bound yet. A socket may be used by one thread at a time.
zmq::socket_t MakeRouter(zmq::context_t& context);
zmq::socket_t MakeDealer(zmq::context_t& context);

}  // namespace layercast::zmq_channel
