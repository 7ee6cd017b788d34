// Package rendezvouspb is golaunch's wire format, generated from rendezvous.proto. Only package rendezvous uses it.
package rendezvouspb

//go:generate go tool -modfile=../../tools/generate/go.mod buf generate
