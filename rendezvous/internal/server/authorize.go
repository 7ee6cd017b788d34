package server

import (
	"context"
	"strings"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/peer"

	"github.com/golaunch/golaunch/internal/wire"
	"github.com/golaunch/golaunch/internal/wire/mtls"
	pb "github.com/golaunch/golaunch/internal/wire/rendezvouspb"
)

// authorize allows everything to a client with the token. A client with the submit token may call
// the cluster service, but may not drain nodes.
func authorize(ctx context.Context) (context.Context, error) {
	p, ok := peer.FromContext(ctx)
	if !ok {
		return ctx, nil
	}
	id, secure, err := identityOf(p)
	if err != nil || !secure { // without TLS, only this machine can connect
		return ctx, err
	}
	method, _ := grpc.Method(ctx)
	if id.Submits && (method == pb.Cluster_Drain_FullMethodName || !strings.HasPrefix(method, "/"+pb.Cluster_ServiceDesc.ServiceName+"/")) {
		return nil, wire.Refused("%v", mtls.ErrSubmitToken)
	}
	return ctx, nil
}

// CertifiedNode returns the node in the certificate of a caller; empty without TLS.
func CertifiedNode(ctx context.Context) (string, error) {
	p, _ := peer.FromContext(ctx)
	id, _, err := identityOf(p)
	return id.Node, err
}

func identityOf(p *peer.Peer) (id mtls.Identity, secure bool, err error) {
	info, secure := p.AuthInfo.(credentials.TLSInfo)
	if !secure {
		return id, false, nil
	}
	if id, err = mtls.Peer(info.State); err != nil {
		return id, true, wire.Refused("%v", err)
	}
	return id, true, nil
}
