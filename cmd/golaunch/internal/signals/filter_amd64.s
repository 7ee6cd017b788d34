#include "textflag.h"

// func filter()
// A handler in C: DI has the signal, SI the siginfo, DX the context. si_code is at 8, and SI_KERNEL is 0x80.
TEXT ·filter(SB),NOSPLIT|NOFRAME,$0-0
	CMPL 8(SI), $0x80
	JNE  sent
	RET

sent:
	MOVQ ·next(SB), AX
	JMP  AX

// func filterAddr() uintptr
TEXT ·filterAddr(SB),NOSPLIT,$0-8
	LEAQ ·filter(SB), AX
	MOVQ AX, ret+0(FP)
	RET
