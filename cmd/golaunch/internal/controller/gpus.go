package controller

import (
	"context"

	"github.com/golaunch/golaunch/internal/host/gpu"
)

// gpus returns the GPUs of this machine that the program may use, each as CUDA_VISIBLE_DEVICES
// names it: by its index, or by its UUID if it is an instance of a GPU.
func (c *controller) gpus(ctx context.Context, _ struct{}) ([]any, error) {
	devices, _, err := gpu.List(ctx)
	names := make([]any, len(devices))
	for i, d := range devices {
		names[i] = d.Index
		if d.MIG {
			names[i] = d.UUID
		}
	}
	return names, err
}
