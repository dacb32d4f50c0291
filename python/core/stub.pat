# What nb::sig cannot say: results that depend on an argument.
_core.Layer.forward:
    \from collections.abc import Mapping
    \from typing import Any, Literal, overload
    @overload
    def forward(self, q: object = None, k: object = None, v: object = None, *, state: Mapping[str, object] | None = None, threads: int | None = None, bfloat16_products: bool = False, return_status: Literal[False] = False, out: Mapping[str, object] | None = None, **inputs: object) -> tuple[numpy.typing.NDArray[Any], dict[str, numpy.typing.NDArray[Any]]]:
        \doc
    @overload
    def forward(self, q: object = None, k: object = None, v: object = None, *, state: Mapping[str, object] | None = None, threads: int | None = None, bfloat16_products: bool = False, return_status: Literal[True], out: Mapping[str, object] | None = None, **inputs: object) -> tuple[numpy.typing.NDArray[Any], dict[str, numpy.typing.NDArray[Any]], numpy.typing.NDArray[numpy.int8]]: ...

_core.Memory.retrieve:
    @overload
    def retrieve(self, query: object = None, *, return_status: Literal[False] = False) -> numpy.typing.NDArray[numpy.float64]:
        \doc
    @overload
    def retrieve(self, query: object = None, *, return_status: Literal[True]) -> tuple[numpy.typing.NDArray[numpy.float64], int]: ...

_core.__prefix__:
    __version__: str
