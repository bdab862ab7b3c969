// What the host program has for crashes is left as it is, though UCX wants to have it.
#include <dlfcn.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>

#include <string>

namespace layercast {
namespace {

std::string LibraryThatHandles(int signal) {
  struct sigaction action = {};
  if (::sigaction(signal, nullptr, &action) != 0) return "unknown";
  Dl_info library = {};
  const bool known = ::dladdr(reinterpret_cast<void*>(action.sa_handler), &library) != 0;
  return known && library.dli_fname != nullptr ? library.dli_fname : "";
}

TEST(UcxCrashSignals, StayWithTheHostProgram) {
  for (const int signal : {SIGSEGV, SIGBUS, SIGFPE, SIGILL}) {
    EXPECT_THAT(LibraryThatHandles(signal), ::testing::Not(::testing::HasSubstr("libuc"))) << signal;
  }
}

}  // namespace
}  // namespace layercast
