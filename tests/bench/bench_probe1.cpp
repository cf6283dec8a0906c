#include <fmt/format.h>
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <map>
#include <string>
#include "kernels/registry.hpp"
#include "lib/measure.hpp"
#include "models/builder.hpp"
#include "models/calibration.hpp"
using namespace fathom;
static double secs(){return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();}
int main(int,char**argv){
  const std::string want=argv[1]; const std::string leaf=argv[2]; const int layer=std::atoi(argv[3]);
  for(auto&c:default_calibration_set(DType::kF32)){ if(c.label!=want)continue;
    const Workload w=build(c.network,c.scenario); BindOptions b; auto e=backend("cpu").bind(w,b);
    auto inst=w.instances(); int target=-1; for(int i=0;i<(int)inst.size();++i) if(w.ops()[(size_t)inst[(size_t)i].op].leaf==leaf && w.program()[(size_t)inst[(size_t)i].step].layer==layer) target=i;
    fmt::print("target {}\n",target);
    auto median=[](std::vector<double> v){std::sort(v.begin(),v.end());return v[v.size()/2]*1e6;};
    auto timed=[&](int i){double t=secs();e->run_instance(i);return secs()-t;};
    for(int rep=0;rep<1;++rep){
    for(int mode=-2;mode<(int)inst.size();++mode){
      if(mode==target||(mode>=0&&w.ops()[(size_t)inst[(size_t)mode].op].leaf=="route/select"))continue;
      std::vector<double> v, lg;
      for(int r=0;r<5;++r){ e->begin_pass();
        for(int i=0;i<(int)inst.size();++i){
          const int rc=e->reference_class(inst[(size_t)i].op);
          if(mode==i)continue;
          if(i==target){ v.push_back(timed(i));
          } else {double t=timed(i); if(i+1==(int)inst.size())lg.push_back(t);}
          if(mode>-2) e->run_reference(rc);
        }}
      fmt::print("skip {:16} {:.1f}  (last op {:.0f})\n",mode<0?"none":w.ops()[(size_t)inst[(size_t)mode].op].leaf,median(v),lg.empty()?0:median(lg));
    }}
  }
}
