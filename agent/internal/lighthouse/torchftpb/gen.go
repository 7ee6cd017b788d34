// Package torchftpb has the messages of torchft's lighthouse, generated from the .proto file beside
// it.
package torchftpb

//go:generate go tool -modfile=../../../../tools/generate/go.mod buf generate
//go:generate go run ../../../../internal/wire/rendezvouspb/lazy.go
