// The sockets of the zmq channel with every option that has an unsafe default. One context per end: the threads of one
// publisher or receiver, and nothing shared.
#pragma once

#include <zmq.hpp>

namespace layercast::zmq_channel {

// Neither connected nor bound. One thread at a time.
zmq::socket_t MakeRouter(zmq::context_t& context);
zmq::socket_t MakeDealer(zmq::context_t& context);

}  // namespace layercast::zmq_channel
