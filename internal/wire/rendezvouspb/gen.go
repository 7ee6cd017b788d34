// Package rendezvouspb has golaunch's messages and log entries, generated from the .proto files
// beside it. Package wire converts them.
package rendezvouspb

//go:generate go tool -modfile=../../../tools/generate/go.mod buf generate
//go:generate go run lazy.go
