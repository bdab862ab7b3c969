// The bare limit of a small sync: a blocking REQ and REP of ZeroMQ over `ipc`, between two processes. Prints the median
// of 2000 round trips in milliseconds. bench/sync_floor.py runs it between its own turns.
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <string>
#include <vector>
#include <zmq.hpp>

namespace {

constexpr int kTrips = 2000;

void Answer(const std::string& address) {
  zmq::context_t context(1);
  zmq::socket_t socket(context, zmq::socket_type::rep);
  socket.bind(address);
  for (zmq::message_t message; socket.recv(message);) socket.send(message, zmq::send_flags::none);
}

double Median(const std::string& address) {
  zmq::context_t context(1);
  zmq::socket_t socket(context, zmq::socket_type::req);
  socket.connect(address);
  std::vector<double> trips;
  for (int trip = 0; trip < kTrips; ++trip) {
    const auto begin = std::chrono::steady_clock::now();
    socket.send(zmq::str_buffer("a request"), zmq::send_flags::none);
    zmq::message_t answer;
    static_cast<void>(socket.recv(answer));
    trips.push_back(std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - begin).count());
  }
  std::ranges::nth_element(trips, trips.begin() + kTrips / 2);
  return trips[kTrips / 2];
}

}  // namespace

int main() {
  const std::string address = "ipc://@layercast-round-trip-" + std::to_string(::getpid());
  const pid_t child = ::fork();
  if (child == 0) {
    Answer(address);
    return 0;
  }
  std::printf("%.4f\n", Median(address));
  ::kill(child, SIGKILL);
  ::waitpid(child, nullptr, 0);
}
