// What a receiver keeps mapped between two versions, and when it lets go of it: over real processes.
#include "src/net/process_watch.h"

#include <gtest/gtest.h>
#include <sys/socket.h>

#include <atomic>
#include <csignal>
#include <fstream>
#include <functional>
#include <string>
#include <thread>

#include "src/base/deadline.h"
#include "src/net/local_socket.h"
#include "tests/conformance/published_bytes.h"
#include "tests/support/child_process.h"

namespace layercast {
namespace {

Deadline Soon() { return Deadline::After(test::kPatience); }

bool Becomes(const std::function<bool()>& what) {
  for (const Deadline deadline = Soon(); !deadline.Passed(); std::this_thread::yield()) {
    if (what()) return true;
  }
  return false;
}

test::ChildProcess Publisher() {
  return test::ChildProcess({test::FolderOfThisProgram() + "/conformance_peer", "offer", "shm"});
}

// The lines of this process's memory map that are of a publisher's segments.
int MappedSegments() {
  std::ifstream maps("/proc/self/maps");
  int found = 0;
  for (std::string line; std::getline(maps, line);) found += line.find("memfd:layercast") != std::string::npos ? 1 : 0;
  return found;
}

void FetchSomething(const Transport& transport, const std::string& address) {
  const auto receiver = transport.Connect(address, Soon());
  test::Fetch fetch({{0, 1, 2'900'000, 1, 2'900'000}});
  EXPECT_TRUE(fetch.IsRight(test::FetchOne(*receiver, 7, fetch)));
}

TEST(ProcessWatch, WhatAnIdleShmReceiverKeepsMappedGoesWhenThePublisherDies) {
  const auto transport = test::TransportNamed("shm");
  test::ChildProcess publisher = Publisher();
  test::ChildProcess other = Publisher();
  const std::string address = publisher.ReadLine();
  for (int version = 0; version < 3; ++version) FetchSomething(*transport, address);
  EXPECT_GT(MappedSegments(), 0);
  other.Signal(SIGKILL);
  publisher.Signal(SIGKILL);  // and it is not reaped
  EXPECT_TRUE(Becomes([] { return MappedSegments() == 0; }));
}

TEST(ProcessWatch, TellsOfWhoeverEndsAndOfNobodyElse) {
  test::ChildProcess lives = Publisher();
  test::ChildProcess dies = Publisher();
  const std::string of_lives = lives.ReadLine();
  const std::string of_dies = dies.ReadLine();
  std::atomic<int> told{0};
  std::string ended;
  ProcessWatch watch([&](const std::string& address) {
    ended = address;
    ++told;
  });
  for (const std::string& address : {of_lives, of_dies, of_dies}) {
    const UniqueFd socket = ConnectLocally(SOCK_SEQPACKET, address.substr(std::string("shm://").size()), Soon());
    watch.Watch(address, socket.get());
  }
  EXPECT_EQ(told, 0);
  dies.Signal(SIGKILL);
  EXPECT_TRUE(Becomes([&] { return told > 0; }));
  EXPECT_EQ(ended, of_dies);
  EXPECT_EQ(told, 1);
}

}  // namespace
}  // namespace layercast
