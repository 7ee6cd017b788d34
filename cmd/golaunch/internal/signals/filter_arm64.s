#include "textflag.h"

// func filter()
// A handler in C: R0 has the signal, R1 the siginfo, R2 the context. si_code is at 8, and SI_KERNEL is 0x80.
TEXT ·filter(SB),NOSPLIT|NOFRAME,$0-0
	MOVW 8(R1), R9
	CMPW $0x80, R9
	BNE  sent
	RET

sent:
	MOVD ·next(SB), R9
	JMP  (R9)

// func filterAddr() uintptr
TEXT ·filterAddr(SB),NOSPLIT,$0-8
	MOVD $·filter(SB), R0
	MOVD R0, ret+0(FP)
	RET
