"""GPU profiles of one prefill, behind Tables 5 and 6 and Figure 5 (paper, section 6.1).

`prefill` runs in the Python that has vLLM, under a profiler or alone; everything else reads what
the profilers export. The paper used NVIDIA Nsight Systems and Nsight Compute; where the first is
not installed, PyTorch's profiler gives the kernel times.
"""
