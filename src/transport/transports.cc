// The factory: one line per transport of this build.
#include "src/transport/channel.h"
#include "src/transport/inproc/inproc_transport.h"
#include "src/transport/shm/shm_transport.h"
#include "src/transport/zmq/zmq_transport.h"

namespace layercast {

std::vector<std::unique_ptr<Transport>> AllTransports() {
  std::vector<std::unique_ptr<Transport>> transports;
  transports.push_back(MakeInprocTransport());
  transports.push_back(MakeShmTransport());
  transports.push_back(MakeZmqTransport());
  return transports;
}

}  // namespace layercast
