package gpu

// Power is the consumption of a GPU; zero if unknown. A MIG instance has the values of its GPU.
type Power struct {
	// Energy is in millijoules since the driver was loaded. Two readings give the mean power
	// between them.
	Energy uint64
	// Limit is the power limit in milliwatts.
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
