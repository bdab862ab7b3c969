#include "src/net/token.h"

#include <sys/random.h>

#include "layercast/error.h"

namespace layercast {

Token RandomToken() {
  Token token;
  if (::getrandom(token.data(), token.size(), 0) != static_cast<ssize_t>(token.size())) {
    throw Error(ErrorCode::kResourceExhausted, "no random bytes");
  }
  return token;
}

bool SameToken(const Token& a, const Token& b) {
  std::byte difference{};
  for (std::size_t i = 0; i < a.size(); ++i) difference |= a[i] ^ b[i];
  return difference == std::byte{};
}

Token Invitations::Invite() {
  const Token token = RandomToken();
  const std::lock_guard lock(mutex_);
  std::erase_if(invited_, [](const Invited& one) { return one.good_until.Passed() && one.leave.use_count() == 1; });
  if (invited_.size() >= kMost) invited_.pop_front();
  invited_.push_back({token, Deadline::After(kGoodFor)});
  return token;
}

std::shared_ptr<const Invitations::Leave> Invitations::Admits(const Token& token) {
  const std::lock_guard lock(mutex_);
  Invited* found = nullptr;
  for (Invited& invited : invited_) {  // all of them, so that time tells nothing
    if (SameToken(invited.token, token)) found = &invited;
  }
  if (found == nullptr || found->good_until.Passed() || found->connections == 0) return nullptr;
  --found->connections;
  return found->leave;
}

void Invitations::TakeBack(const Token& token) {
  const std::lock_guard lock(mutex_);
  std::erase_if(invited_, [&](const Invited& one) {
    const bool meant = SameToken(one.token, token);
    if (meant) one.leave->taken_back_ = true;
    return meant;
  });
}

}  // namespace layercast
