// The measurement of large clusters, in a module of its own so that golaunch's packages are what ships.
module github.com/golaunch/golaunch/tools/scale

go 1.26.0

require (
	github.com/golaunch/golaunch v0.0.0
	golang.org/x/sys v0.49.0
)

require (
	github.com/NVIDIA/go-nvml v0.13.3-1 // indirect
	github.com/cenkalti/backoff/v4 v4.3.0 // indirect
	github.com/ebitengine/purego v0.11.3 // indirect
	github.com/grpc-ecosystem/go-grpc-middleware/v2 v2.3.4 // indirect
	go.etcd.io/raft/v3 v3.7.0 // indirect
	go.yaml.in/yaml/v3 v3.0.5 // indirect
	golang.org/x/net v0.60.0 // indirect
	golang.org/x/sync v0.24.0 // indirect
	golang.org/x/text v0.42.0 // indirect
	google.golang.org/genproto/googleapis/rpc v0.0.0-20260817212433-ac3dfec99bb1 // indirect
	google.golang.org/grpc v1.85.0 // indirect
	google.golang.org/protobuf v1.36.12 // indirect
)

replace github.com/golaunch/golaunch => ../..
