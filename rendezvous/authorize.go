package rendezvous

import (
	"context"
	"strings"

	"github.com/grpc-ecosystem/go-grpc-middleware/v2/interceptors/auth"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/peer"

	"github.com/golaunch/golaunch/internal/wire"
	"github.com/golaunch/golaunch/internal/wire/mtls"
	pb "github.com/golaunch/golaunch/internal/wire/rendezvouspb"
)

// authorize lets who has the token do all, and who has the submit token be a client that does not touch nodes.
var authorize auth.AuthFunc = func(ctx context.Context) (context.Context, error) {
	p, ok := peer.FromContext(ctx)
	if !ok {
		return ctx, nil
	}
	info, ok := p.AuthInfo.(credentials.TLSInfo)
	if !ok {
		return ctx, nil // without TLS nobody comes from elsewhere
	}
	id, err := mtls.Peer(info.State)
	if err != nil {
		return nil, wire.Refused("%v", err)
	}
	method, _ := grpc.Method(ctx)
	if id.Submits && (method == pb.Cluster_Drain_FullMethodName || !strings.HasPrefix(method, "/"+pb.Cluster_ServiceDesc.ServiceName+"/")) {
		return nil, wire.Refused("%v", mtls.ErrSubmitToken)
	}
	return ctx, nil
}
