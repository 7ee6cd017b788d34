package election

import (
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/golaunch/golaunch/internal/wire/quorum"
	pb "github.com/golaunch/golaunch/internal/wire/rendezvouspb"
)

// stepCall is a call of another voter.
type stepCall struct{ pb.Quorum_StepServer }

func TestChunks(t *testing.T) {
	var in chunkAssembler
	a, b := &stepCall{}, &stepCall{}
	add := func(from *stepCall, size uint64, data, want string, code codes.Code) {
		t.Helper()
		got, err := in.add(from, &pb.Chunk{Size: size, Data: []byte(data)})
		if string(got) != want || status.Code(err) != code {
			t.Errorf("%q, %v; want %q, %v", got, err, want, code)
		}
	}
	add(a, 5, "whole", "whole", codes.OK)
	add(a, 7, "chu", "", codes.OK)
	add(a, 0, "nk", "", codes.OK)
	add(b, 2, "in", "in", codes.OK) // a short message needs no memory
	add(a, 0, "s!", "chunks!", codes.OK)
	add(a, 0, "more", "", codes.Aborted)
	add(a, 5, "old", "", codes.OK)
	add(b, 4, "new", "", codes.OK)
	add(a, 0, "er", "", codes.Aborted)
	in.forget(a)
	add(b, 0, "er", "", codes.InvalidArgument)
	add(b, 0, "r", "newr", codes.OK)
	add(a, 9, "dies", "", codes.OK)
	in.forget(a)
	if in.data != nil {
		t.Errorf("%q is kept", in.data)
	}
	add(a, quorum.MaxMessage+1, "", "", codes.ResourceExhausted)
}
