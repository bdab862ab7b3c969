#include <gtest/gtest.h>

#include "src/net/token.h"

namespace layercast {
namespace {

TEST(Invitations, AdmitOnlyWhatWasHandedOut) {
  Invitations invitations;
  const Token mine = invitations.Invite();
  EXPECT_FALSE(invitations.Admits({}));
  EXPECT_FALSE(invitations.Admits(RandomToken()));
  EXPECT_TRUE(invitations.Admits(mine));
  EXPECT_FALSE(Invitations().Admits(mine));
}

TEST(Invitations, AreUsedUpByAFewConnections) {
  Invitations invitations;
  const Token one = invitations.Invite();
  const Token other = invitations.Invite();
  for (int i = 0; i < Invitations::kConnections; ++i) EXPECT_TRUE(invitations.Admits(one)) << i;
  EXPECT_FALSE(invitations.Admits(one));
  EXPECT_TRUE(invitations.Admits(other));
}

TEST(Invitations, OfWhoNeverComesMakeRoomForOthers) {
  Invitations invitations;
  const Token oldest = invitations.Invite();
  for (int i = 0; i < 4096; ++i) static_cast<void>(invitations.Invite());
  EXPECT_FALSE(invitations.Admits(oldest));
}

}  // namespace
}  // namespace layercast
