package wire

import (
	"github.com/golaunch/golaunch/internal/wire/quorum"
	pb "github.com/golaunch/golaunch/internal/wire/rendezvouspb"
)

// FromVoter converts a voter; nil for no voter.
func FromVoter(v quorum.Voter) *pb.Voter {
	if v == (quorum.Voter{}) {
		return nil
	}
	return &pb.Voter{Id: v.ID, Name: v.Name, Addr: v.Addr}
}

func ToVoter(v *pb.Voter) quorum.Voter {
	return quorum.Voter{ID: v.GetId(), Name: v.GetName(), Addr: v.GetAddr()}
}
