package gpu

import (
	"slices"
	"testing"
)

func TestRestrict(t *testing.T) {
	devices := []Device{
		{Index: 0, UUID: "GPU-8f12"},
		{Index: 1, UUID: "GPU-8f34"},
		{Index: 2, UUID: "GPU-9a"},
		{Index: 3, UUID: "MIG-1c"},
		{Index: 10, UUID: "MIG-1cd"},
	}
	for value, want := range map[string][]int{
		"":                    nil,
		"-1":                  nil,
		"none":                nil,
		"NoDevFiles":          nil,
		"0":                   {0},
		"2,1":                 {2, 1},
		" 2, 1 ":              {2, 1},
		"10":                  {10},
		"0,2,-1,1":            {0, 2},
		"0,4,1":               {0},
		"1,,2":                {1},
		"0,":                  {0},
		"0,0":                 nil,
		"2,GPU-9a":            nil,
		"GPU-9a,-1,GPU-9a":    {2},
		"GPU-9":               {2},
		"GPU-8f12,GPU-8f3,10": {0, 1, 10},
		"GPU-8f":              nil,
		"GPU-9a,GPU-8f":       {2},
		"GPU-9abc":            nil,
		"gpu-9a":              nil,
		"9a":                  nil,
		"MIG-1c":              {3},
		"MIG-1cd":             {10},
		"MIG-1":               nil,
	} {
		var got []int
		for _, d := range Restrict(devices, value) {
			got = append(got, d.Index)
		}
		if !slices.Equal(got, want) {
			t.Errorf("CUDA_VISIBLE_DEVICES=%q: devices %v, want %v", value, got, want)
		}
	}
}
