package gpu

// Power is what a GPU uses; zero where the driver does not tell. A MIG instance has that of its GPU.
type Power struct {
	// Energy is in millijoules since the driver was loaded, so that two looks give the mean power between them.
	Energy uint64
	// Limit is what it may draw, in milliwatts.
	Limit uint64
}

func power(c card) (p Power) {
	f := []fieldValue{{id: energy}, {id: powerLimit}}
	if c.fields(f) == nil {
		p.Energy, _ = f[0].number()
		p.Limit, _ = f[1].number()
	}
	return p
}
