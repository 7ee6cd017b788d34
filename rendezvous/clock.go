package rendezvous

import (
	"google.golang.org/protobuf/types/known/timestamppb"

	pb "github.com/golaunch/golaunch/internal/wire/rendezvouspb"
)

// echo is what the coordinator sends back of a heartbeat.
func echo(b *pb.Heartbeat) *pb.Heartbeat {
	return &pb.Heartbeat{At: b.GetAt(), Time: timestamppb.Now()}
}
